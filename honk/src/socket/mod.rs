//! Socket options: transparency, marks, original destination, buffer sizes.
