#pragma once
#include <exception>
#include <string>

#include "tandem/base/error.h"

namespace tandem::test {

/// The text of the exception that `run` throws, in one line; of any other type: it goes on to the test.
template <class Exception = std::exception, class Run>
std::string text_of(Run run) {
  try {
    run();
  } catch (const Exception& error) {
    return message_of(error);
  }
  return "nothing thrown";
}

}  // namespace tandem::test
