"""What the tests run against: private services, faulty networks, the product as processes."""
