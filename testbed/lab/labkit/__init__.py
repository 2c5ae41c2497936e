# SPDX-License-Identifier: Apache-2.0
# What the lab's commands are made of: parameters, system calls, fabric, report, command line.
