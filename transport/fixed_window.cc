// SPDX-License-Identifier: Apache-2.0
// No congestion control (FORGIVE_CC=none): line rate and the memory window, whatever the network says.
#include "transport/fixed_window.h"

namespace forgive {

FixedWindow::FixedWindow(const Config& config) : window_bytes_(config.window_bytes) {}

void FixedWindow::Restart(TimePoint) {}
void FixedWindow::OnSignal(TimePoint, CongestionSignal) {}
void FixedWindow::OnSent(TimePoint, uint64_t) {}
void FixedWindow::OnDeadline(TimePoint) {}
TimePoint FixedWindow::next_deadline() const { return kNever; }
void FixedWindow::set_base_rtt(Nanoseconds) {}
BitsPerSecond FixedWindow::rate() const { return {}; }
uint64_t FixedWindow::window_bytes() const { return window_bytes_; }
const CongestionControl::Cuts& FixedWindow::cuts() const { return cuts_; }

}  // namespace forgive
