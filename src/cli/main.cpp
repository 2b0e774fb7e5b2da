#include "cli/tool.h"

int main(int argc, char** argv) { return kernwright::cli::run_tool(argc, argv); }
