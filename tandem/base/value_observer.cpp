#include "tandem/base/value_observer.h"

#include <utility>

namespace tandem {
namespace {

thread_local ValueObserver* current = nullptr;

}  // namespace

ValueObserver* value_observer() { return current; }

ValueObserverScope::ValueObserverScope(ValueObserver* observer) : before_(std::exchange(current, observer)) {}
ValueObserverScope::~ValueObserverScope() { current = before_; }

}  // namespace tandem
