// Boost.JSON itself, compiled here: of Boost nothing but headers is needed.
#include <boost/json/src.hpp>
