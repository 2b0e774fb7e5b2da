#ifndef KERNWRIGHT_VERSION_H
#define KERNWRIGHT_VERSION_H

/* The version of these headers, for C and C++, which a program compares at compile time. What it
 * runs with may be another: kw_version() tells that one. */
#define KERNWRIGHT_VERSION_MAJOR 0
#define KERNWRIGHT_VERSION_MINOR 1
#define KERNWRIGHT_VERSION_PATCH 0
#define KERNWRIGHT_VERSION_STRING "0.1.0"

/* As one number that grows: major * 10000 + minor * 100 + patch. */
#define KERNWRIGHT_VERSION \
  (KERNWRIGHT_VERSION_MAJOR * 10000 + KERNWRIGHT_VERSION_MINOR * 100 + KERNWRIGHT_VERSION_PATCH)

#endif
