package packages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// suite is the Debian release of the roots. extras are the packages that ours depend on, so that no test
// needs a network once the base exists.
const (
	suite  = "bookworm"
	extras = "ca-certificates"
)

// commandTime limits each command.
const commandTime = 10 * time.Minute

// run runs a command of this machine, which must succeed, and returns its output.
func run(tb testing.TB, name string, args ...string) string {
	tb.Helper()
	out, err := output(name, args...)
	if err != nil {
		tb.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// output runs a command and returns what it printed.
func output(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// base returns a minimal Debian root, which all tests copy. It is kept in the cache of the user, because it
// takes a minute to download.
var base = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "dispatcher-test")
	dir := filepath.Join(cache, suite+"-"+runtime.GOARCH)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	mirror, err := mirror()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(cache, "new-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	if out, err := output("debootstrap", "--variant=minbase", "--include="+extras, suite, fresh,
		mirror); err != nil {
		return "", fmt.Errorf("debootstrap: %w\n%s", err, out)
	}
	return dir, errors.Join(os.Chmod(fresh, 0o755), os.Rename(fresh, dir))
})

// mirror returns the Debian mirror of this machine's apt, or of the variable DEBIAN_MIRROR.
func mirror() (string, error) {
	if named := os.Getenv("DEBIAN_MIRROR"); named != "" {
		return named, nil
	}
	out, err := output("apt-get", "indextargets", "--format", "$(ORIGIN) $(RELEASE) $(REPO_URI)",
		"Created-By: Packages")
	if err != nil {
		return "", fmt.Errorf("apt-get indextargets: %w\n%s", err, out)
	}
	for line := range strings.Lines(out) {
		if word := strings.Fields(line); len(word) == 3 && word[0] == "Debian" && word[1] == suite {
			return word[2], nil
		}
	}
	return "", fmt.Errorf("apt has no mirror of Debian %s; set DEBIAN_MIRROR to the address of one", suite)
}

// A machine is a Debian root whose network has only a loopback device, and whose mounts end with it.
type machine struct {
	testing.TB
	root string // of this machine's files, seen from outside
	pid  string // of the process that keeps the namespaces
}

// startMachine copies the base and starts a machine. It ends with the test.
func startMachine(tb testing.TB) *machine {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Fatal("this test needs root: it installs packages in a chroot with its own network")
	}
	from, err := base()
	harness.Check(tb, err)
	// The path is short, because the address of a socket has at most 107 bytes.
	dir, err := os.MkdirTemp("", "deb-")
	harness.Check(tb, err)
	tb.Cleanup(func() { harness.Check(tb, os.RemoveAll(dir)) })
	m := &machine{TB: tb, root: filepath.Join(dir, "root")}
	run(tb, "cp", "-a", from, m.root)
	cmd := exec.Command("unshare", "--mount", "--net", "sh", "-ec", `
		mount --bind "$0" "$0"
		mount -t proc proc "$0/proc"
		ip link set lo up
		echo started
		exec cat`, m.root)
	// The namespaces end with this pipe, also if the test is killed.
	in, err := cmd.StdinPipe()
	harness.Check(tb, err)
	out, err := cmd.StdoutPipe()
	harness.Check(tb, err)
	cmd.Stderr = os.Stderr
	harness.Check(tb, cmd.Start())
	tb.Cleanup(func() { harness.Check(tb, errors.Join(in.Close(), cmd.Wait())) })
	line := make([]byte, len("started\n"))
	if _, err := out.Read(line); err != nil || string(line) != "started\n" {
		tb.Fatalf("the machine does not start; it needs the right to create namespaces: %v", err)
	}
	m.pid = fmt.Sprint(cmd.Process.Pid)
	return m
}

// inside returns a command that runs on the machine's network and mounts: a shell script that sees the files
// of this machine, with $0 for the root, then words.
func (m *machine) inside(script string, words ...string) *exec.Cmd {
	args := append([]string{"--target", m.pid, "--mount", "--net", "sh", "-ec", script, m.root}, words...)
	cmd := exec.Command("nsenter", args...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8",
		"HOME=/root", "DEBIAN_FRONTEND=noninteractive"}
	return cmd
}

// shell returns a command that runs a shell script as root on the machine, in /root.
func (m *machine) shell(script string) *exec.Cmd {
	return m.inside(`exec chroot "$0" sh -ec "cd /root; $1"`, script)
}

// try runs a shell script as root on the machine, and returns what it printed.
func (m *machine) try(script string) (string, error) {
	m.Helper()
	cmd := m.shell(script)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	harness.Check(m, cmd.Start())
	late := time.AfterFunc(commandTime, func() { cmd.Process.Kill() })
	defer late.Stop()
	err := cmd.Wait()
	return out.String(), err
}

// do is try for a script that must succeed.
func (m *machine) do(script string) string {
	m.Helper()
	out, err := m.try(script)
	if err != nil {
		m.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return out
}

// write writes a file of the machine.
func (m *machine) write(name, content string, mode os.FileMode) {
	m.Helper()
	path := filepath.Join(m.root, name)
	harness.Check(m, os.MkdirAll(filepath.Dir(path), 0o755))
	harness.Check(m, os.WriteFile(path, []byte(content), mode))
	harness.Check(m, os.Chmod(path, mode))
}

// read reads a file of the machine.
func (m *machine) read(name string) string {
	m.Helper()
	content, err := os.ReadFile(filepath.Join(m.root, name))
	harness.Check(m, err)
	return string(content)
}
