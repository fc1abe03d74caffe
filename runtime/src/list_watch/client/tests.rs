//! ClientListWatch over an in-memory service.
