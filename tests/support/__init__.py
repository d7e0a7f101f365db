"""What the tests run against and compare with, beside the product."""
