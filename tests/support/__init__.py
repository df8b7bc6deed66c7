"""What the tests run against: private services, a network that misbehaves, the product as processes."""
