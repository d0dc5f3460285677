"""The door of an attached application: what others on this host may read of it over HTTP, and how they find it."""
