"""Sinks: what makes document operations durable."""
