#include <cstdio>

int main() {
  std::puts("omni " OMNI_VERSION);
  return 0;
}
