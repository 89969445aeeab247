/* 1 in builds with NSQFAST_DEBUG=1 or NSQFAST_SANITIZE=1; in others the compiler removes the code that it guards. */
#ifndef NSQFAST_DEBUG
#define NSQFAST_DEBUG 0
#endif
