"""Tests of the ingestion."""
