// Package docs runs the commands and programs of README.md and of all pages below docs, with the built
// binary.
//
// The word after the language of a code block decides what the test does with it. Readers do not see it.
//
//	```sh                  runs in the page's shell, in the order of the page; it must exit with 0
//	```sh @NAME            runs in a terminal of that name until the page ends. The test waits until it
//	                       prints "listening" or "is serving". A second block of the same name ends the
//	                       first with Ctrl-C
//	```LANGUAGE FILE       is saved under that name: a program or a file that a later block uses
//	```LANGUAGE not run: R is listed with the reason R, and not run
//	```text output         is what the block before it printed; "…" stands for any text, and on a line alone
//	                       for any lines
//	```text soon           likewise; the block before it runs again until it prints this
//	```text @NAME          is what the terminal has printed, maybe among other lines
//
// Blocks in other languages are data; JSON must be valid. These fail the test: a block without a language, an
// indented one, commands in a language other than sh, a program without a file, and a command that acts on
// containers, a cluster, or packages and services of the machine and is not marked as not run.
//
// Each page has an empty directory with its own server, unless it starts one. The program is in the
// PATH, and after "make build" in bin. Only three things of a block are replaced: the ports 8080, 8081 and
// 9090 by free ones, the hosts *.example by a receiver, and the PostgreSQL and Redis of a URL by servers of
// the test.
package docs
