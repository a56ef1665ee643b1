"""The tests of lsmstate; they mirror the packages."""
