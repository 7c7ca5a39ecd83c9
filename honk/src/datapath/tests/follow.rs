//! Interfaces, addresses and programs that come, change and go.

use super::*;
