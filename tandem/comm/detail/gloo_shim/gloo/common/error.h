#pragma once  // The torch wheel ships no Gloo headers; its ProcessGroupGloo.hpp needs only these names.
