// The bytes of one device: what instances may hold (granted) and what is set aside for the next
// load (held). Their sum never exceeds the budget.
#pragma once

#include "base/bytes.h"

namespace omni::scheduling {

class Ledger {
 public:
  explicit Ledger(Bytes budget) : budget_(budget) {}

  Bytes budget() const { return budget_; }
  Bytes granted() const { return granted_; }
  Bytes held() const { return held_; }
  Bytes free() const { return budget_ - granted_ - held_; }

  void grant(Bytes bytes);
  void release(Bytes bytes);
  void hold(Bytes bytes);
  void unhold(Bytes bytes);

 private:
  Bytes budget_;
  Bytes granted_;
  Bytes held_;
};

}  // namespace omni::scheduling
