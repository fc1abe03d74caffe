//! Tools of the tests: objects, a feed in the test's hands, and a record of what was heard.
