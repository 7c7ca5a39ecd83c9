//! Failed starts, deaths and what is left of them.

use super::*;
