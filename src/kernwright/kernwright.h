#pragma once

/// Everything a C++ user of kernwright includes.

#include <kernwright/kernel.h>
#include <kernwright/problem.h>
#include <kernwright/result.h>
#include <kernwright/service.h>
