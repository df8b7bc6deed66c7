"""Money: payments of an order, the providers that take it, and the messages they send."""
