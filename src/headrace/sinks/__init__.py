"""How do document operations become durable?"""
