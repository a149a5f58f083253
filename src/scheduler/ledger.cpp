#include "scheduler/ledger.h"

#include <cassert>

namespace omni::scheduling {

void Ledger::grant(Bytes bytes) {
  assert(bytes >= Bytes(0) && bytes <= free());
  granted_ += bytes;
}

void Ledger::release(Bytes bytes) {
  assert(bytes >= Bytes(0) && bytes <= granted_);
  granted_ -= bytes;
}

void Ledger::hold(Bytes bytes) {
  assert(bytes >= Bytes(0) && bytes <= free());
  held_ += bytes;
}

void Ledger::unhold(Bytes bytes) {
  assert(bytes >= Bytes(0) && bytes <= held_);
  held_ -= bytes;
}

}  // namespace omni::scheduling
