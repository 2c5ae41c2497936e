// SPDX-License-Identifier: Apache-2.0
// Where the drivers of one kind can reach each other, for the contract that all of them keep.
#ifndef FORGIVE_TESTS_DATAPLANE_NETWORK_H_
#define FORGIVE_TESTS_DATAPLANE_NETWORK_H_

#include <memory>
#include <string>

#include "dataplane/driver.h"

namespace forgive {

class Network {
 public:
  virtual ~Network() = default;
  virtual std::unique_ptr<Driver> Open() = 0;
  // Sends one packet with Congestion Experienced.
  virtual void SendMarked(Driver& from, const Address& to, const std::string& bytes) = 0;
};

}  // namespace forgive

#endif  // FORGIVE_TESTS_DATAPLANE_NETWORK_H_
