// Package docs runs the commands and programs of README.md and of all pages below docs, with the built
// binary. The doc comment of internal/docpage explains which blocks of a page run, and how they are checked.
//
// Each page has an empty directory with its own server, unless it starts one. The program is in the
// PATH, and after "make build" in bin. Only three things of a block are replaced: the ports 8080, 8081 and
// 9090 by free ones, the hosts *.example by a receiver, and the PostgreSQL, Redis and MariaDB of a URL by
// servers of the test. The client mysql logs in to that MariaDB.
package docs
