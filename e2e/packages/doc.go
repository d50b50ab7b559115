// Package packages installs the deb in a Debian root and uses it as an administrator does: the commands of
// docs/guide/install.md run there. It also checks the deb, the rpm, the units and the scripts with the tools
// of the distributions.
//
// A root has no systemd. A systemctl of the test takes its place: it starts a service with the user, the
// environment, the directories and the read-only system that its unit asks for, and waits for READY=1. What
// only a real systemd can show, such as the filter of system calls at work, is compared with the unit: see
// TestTheUnitAllowsWhatTheServiceDoes.
//
// The tests need root and namespaces. They are part of make test-full.
package packages
