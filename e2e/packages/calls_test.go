package packages

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// traceLine matches a system call in strace's output: the process, the name and the arguments.
var traceLine = regexp.MustCompile(`^\d+ +([a-z0-9_]+)\((.*)`)

// What the restrictions of the unit refuse, in strace's words.
var (
	family    = regexp.MustCompile(`^(AF_[A-Z0-9]+)`)
	writeExec = regexp.MustCompile(`PROT_WRITE\|PROT_EXEC`)
	namespace = regexp.MustCompile(`CLONE_NEW`)
)

// TestTheUnitAllowsWhatTheServiceDoes traces the services while they do what they usually do. Each system
// call must pass the filter of the unit, and each socket must be of a family that it allows. Nothing maps
// memory that is writable and executable, or makes a namespace.
func TestTheUnitAllowsWhatTheServiceDoes(t *testing.T) {
	s := installed(t)
	m := s.machine
	// All addresses: then the guard of outgoing requests asks for the addresses of this machine.
	m.write("/etc/dispatcher/dispatcher.env",
		"DISPATCHER_EGRESS_ALLOW=127.0.0.0/8,10.0.0.0/8\nDISPATCHER_LISTEN=0.0.0.0:8080\n", 0o640)
	s.trace = filepath.Join(filepath.Dir(m.root), "serve")
	m.do("systemctl start dispatcher")
	m.do(asAdmin + "callback send --url http://127.0.0.1:9090/notify --data '{}'")
	m.do(asAdmin + "callback send --url http://10.0.0.1:8080/notify --data '{}'")
	m.do(asAdmin + "callback send --url https://shop.invalid/notify --data '{}'")
	// A receiver on this machine, the list of the machine's addresses, and a name server.
	for _, want := range []string{
		`connect\(.*htons\(9090\)`, `socket\(AF_NETLINK`, `connect\(.*htons\(53\)`,
	} {
		harness.Eventually(t, startTime, "the service calls "+want, func() error {
			text, err := os.ReadFile(s.trace)
			if err == nil && !regexp.MustCompile(want).Match(text) {
				err = errors.New("not yet")
			}
			return err
		})
	}
	s.trace = filepath.Join(filepath.Dir(m.root), "backup")
	m.do("systemctl start dispatcher-backup")
	m.do("systemctl stop dispatcher")
	s.took()
	for name, unit := range map[string]string{
		"serve": "dispatcher.service", "backup": "dispatcher-backup.service",
	} {
		u, err := m.unit(unit)
		harness.Check(t, err)
		checkTrace(t, filepath.Join(filepath.Dir(m.root), name), u)
	}
}

// checkTrace compares a trace with the restrictions of a unit.
func checkTrace(t *testing.T, file string, u unit) {
	t.Helper()
	text, err := os.ReadFile(file)
	harness.Check(t, err)
	// What chroot and setpriv did before the program started is not the service's.
	_, own, found := strings.Cut(string(text), `execve("/usr/bin/dispatcher"`)
	if !found {
		t.Fatalf("%s: the program is not in the trace", file)
	}
	allowed := filter(t, u.words("SystemCallFilter"))
	families := u.words("RestrictAddressFamilies")
	seen := map[string]bool{}
	for line := range strings.Lines(own) {
		call := traceLine.FindStringSubmatch(line)
		if call == nil {
			continue
		}
		name, args := call[1], call[2]
		if !seen[name] && !allowed[name] {
			t.Errorf("%s: SystemCallFilter refuses %s", filepath.Base(file), strings.TrimSpace(line))
		}
		seen[name] = true
		if f := family.FindString(args); name == "socket" && !slices.Contains(families, f) {
			t.Errorf("%s: RestrictAddressFamilies refuses %s", filepath.Base(file), strings.TrimSpace(line))
		}
		if writeExec.MatchString(args) && (name == "mmap" || name == "mprotect") ||
			namespace.MatchString(args) && strings.HasPrefix(name, "clone") {
			t.Errorf("%s: MemoryDenyWriteExecute or RestrictNamespaces refuses %s", filepath.Base(file),
				strings.TrimSpace(line))
		}
	}
	t.Logf("%s: %d different system calls", filepath.Base(file), len(seen))
	if len(seen) < 20 {
		t.Errorf("%s: only %d system calls were traced", filepath.Base(file), len(seen))
	}
}

// filter returns the system calls that the values of SystemCallFilter allow.
func filter(t *testing.T, words []string) map[string]bool {
	t.Helper()
	allowed := map[string]bool{}
	deny := false
	for _, word := range words {
		if rest, negated := strings.CutPrefix(word, "~"); negated {
			deny, word = true, rest
		}
		for _, name := range members(t, word) {
			allowed[name] = !deny
		}
	}
	return allowed
}

// members returns the system calls of a set of systemd, or the name itself.
func members(t *testing.T, name string) (all []string) {
	t.Helper()
	if !strings.HasPrefix(name, "@") {
		return []string{name}
	}
	for line := range strings.Lines(run(t, "systemd-analyze", "syscall-filter", name)) {
		member := strings.TrimSpace(line)
		if member == "" || member == name || strings.HasPrefix(member, "#") {
			continue
		}
		all = append(all, members(t, member)...)
	}
	return all
}
