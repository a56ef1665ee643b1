"""Tables: the state of operators by key, and reference tables that rows are looked up in."""
