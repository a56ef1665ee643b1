"""Runs and SSTables: how rows are ordered, filtered, stored and found. FORMAT.md describes the file."""
