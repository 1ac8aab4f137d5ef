"""Advisor snapshots (A-01): what a customer holds, summed up for the advisor who has the customer."""
