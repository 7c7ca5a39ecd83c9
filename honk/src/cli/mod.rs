//! Subcommands and their output.
