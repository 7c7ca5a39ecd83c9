#!/bin/sh
# Stands for a test binary in the tests of runner.rs: does what the file `plan` in its folder says.
. ./plan
