#ifndef KERNWRIGHT_VERSION_H
#define KERNWRIGHT_VERSION_H

/* The version of these headers, for C and C++. A program may compare it at compile time. The
 * library that it runs with may have another version, which kw_version() tells. */
#define KERNWRIGHT_VERSION_MAJOR 0
#define KERNWRIGHT_VERSION_MINOR 2
#define KERNWRIGHT_VERSION_PATCH 0
#define KERNWRIGHT_VERSION_STRING "0.2.0"

/* The version as one number that grows: major * 10000 + minor * 100 + patch. */
#define KERNWRIGHT_VERSION \
  (KERNWRIGHT_VERSION_MAJOR * 10000 + KERNWRIGHT_VERSION_MINOR * 100 + KERNWRIGHT_VERSION_PATCH)

#endif
