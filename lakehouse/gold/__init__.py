"""Tables for readers, computed from silver: figures of days and hours, and features of users."""
