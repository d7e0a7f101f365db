"""Decide what a deployment does next: compare what is with what should be, and act on the difference.

`observe` gives a `World`, files and open orders give a `Desired`; `reconcile` compares them and returns
actions; `act` carries one out. Each round begins with another look, so nothing is remembered between rounds
but how often an action has failed.
"""
