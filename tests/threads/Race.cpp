// Two threads that write one number: what ThreadSanitizer has to find where it works. It may miss
// two writes that happen at the very same time, but not all of many.
#include <cstdio>
#include <thread>

static volatile int number = 0;

static void count() {
  for (int i = 0; i < 10000; ++i)
    number = number + 1;
}

int main() {
  std::thread other(count);
  count();
  other.join();
  std::printf("%d\n", number);
}
