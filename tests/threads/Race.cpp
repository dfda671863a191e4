// Two threads that write one number: what ThreadSanitizer has to find where it works.
#include <cstdio>
#include <thread>

static int number = 0;

int main() {
  std::thread other([] { ++number; });
  ++number;
  other.join();
  std::printf("%d\n", number);
}
