package packages

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// page is the guide whose commands run here.
const page = "../../docs/guide/install.md"

// A guide runs the blocks of the page on a machine, in their order.
type guide struct {
	*supervisor
	blocks []guideBlock
}

// A guideBlock is a block of commands. second: it runs in a second terminal until the machine ends.
type guideBlock struct {
	section, text string
	second        bool
}

// guideBlocks matches a heading, or a block that runs here.
var guideBlocks = regexp.MustCompile(
	"(?ms)^## (.*?)$|^```sh not run: e2e/packages runs it in a (.*?)\n(.*?)\n```$")

// readGuide returns the blocks of the page.
func readGuide(tb testing.TB) (blocks []guideBlock) {
	tb.Helper()
	text, err := os.ReadFile(page)
	harness.Check(tb, err)
	section := ""
	for _, m := range guideBlocks.FindAllStringSubmatch(string(text), -1) {
		if m[2] == "" {
			section = m[1]
			continue
		}
		commands := strings.ReplaceAll(m[3], "_amd64.deb", "_"+runtime.GOARCH+".deb")
		blocks = append(blocks, guideBlock{section, commands, m[2] == "second terminal"})
	}
	return blocks
}

// next runs the next block, which must be of the named section, and returns what it printed. The output of a
// block of a second terminal is in the returned terminal.
func (g *guide) next(section string) (string, *terminal) {
	g.Helper()
	if len(g.blocks) == 0 || g.blocks[0].section != section {
		g.Fatalf("the page has no further block in %q; left are %v", section, g.blocks)
	}
	b := g.blocks[0]
	g.blocks = g.blocks[1:]
	if b.second {
		return "", g.open(b.text)
	}
	out, err := g.try(b.text)
	if err != nil {
		g.Fatalf("%s\n%v\n%s\nthe supervisor: %v", b.text, err, out, g.failure())
	}
	return out, nil
}

// A terminal is the output of a running shell on a machine.
type terminal struct{ testserver.Log }

// open runs a block until the test ends.
func (g *guide) open(text string) *terminal {
	g.Helper()
	t := &terminal{}
	cmd := g.shell(strings.Replace(text, "\ndispatcher listen", "\nexec dispatcher listen", 1))
	cmd.Stdout, cmd.Stderr = t, t
	harness.Check(g, cmd.Start())
	g.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait() // killed
	})
	t.await(g, "listening")
	return t
}

// await waits until the terminal shows a text.
func (t *terminal) await(tb testing.TB, want string) {
	tb.Helper()
	harness.Eventually(tb, time.Minute, "the terminal shows "+want, func() error {
		if text := t.String(); !strings.Contains(text, want) {
			return fmt.Errorf("it shows %q", text)
		}
		return nil
	})
}

// The headings of the page.
const (
	atTop     = ""
	starting  = "How do I start it, and send the first callback?"
	backingUp = "How do I back up, and restore?"
	upgrading = "How do I upgrade?"
	removing  = "How do I remove it?"
)

// TestTheInstallGuide runs the commands of docs/guide/install.md on a machine: install, one setting, the
// first callback with a verified signature, backup, restore, upgrade, removal.
func TestTheInstallGuide(t *testing.T) {
	m := startMachine(t)
	g := &guide{startSupervisor(m), readGuide(t)}
	harness.Check(t, os.MkdirAll(filepath.Join(m.root, "root/bin/packages"), 0o755))
	place := filepath.Join(m.root, "root/bin/packages")
	run(t, "cp", deb(t, firstVersion), place)
	withOtherSettings(t, deb(t, secondVersion), filepath.Join(place, debName(secondVersion)))

	out, _ := g.next(atTop)
	contains(t, out, "systemctl enable --now dispatcher")
	g.called("--system daemon-reload", "try-restart dispatcher.service")
	if g.service() != nil {
		t.Error("the installation has started the service")
	}
	same(t, "owners", m.do("stat -c '%U:%G %a' /var/lib/dispatcher /etc/dispatcher/dispatcher.env"),
		"dispatcher:dispatcher 700\nroot:root 640\n")

	g.next(starting)
	g.called("enable --now dispatcher")
	_, receiver := g.next(starting)
	g.next(starting)
	receiver.await(t, "signature ok")
	g.succeeded("order-1")
	g.checkMetrics(firstVersion)

	g.next(backingUp)
	g.called("enable --now dispatcher-backup.timer", "start dispatcher-backup")
	contains(t, m.read("/var/cache/dispatcher/backup.prom"),
		"dispatcher_backup_last_success_timestamp_seconds 1")
	same(t, "the metric's mode", m.do("stat -c %a /var/cache/dispatcher /var/cache/dispatcher/backup.prom"),
		"755\n644\n")
	m.send("order-2") // after the backup: the restore loses it
	g.next(backingUp)
	g.called("stop dispatcher", "start dispatcher")
	g.succeeded("order-1")
	same(t, "callbacks after the restore", m.do(list+"--ref order-2 | wc -l"), "1\n")

	settings := m.read("/etc/dispatcher/dispatcher.env")
	g.next(upgrading)
	g.called("start dispatcher-backup", "--system daemon-reload", "try-restart dispatcher.service")
	same(t, "the settings after the upgrade", m.read("/etc/dispatcher/dispatcher.env"), settings)
	contains(t, m.read("/etc/dispatcher/dispatcher.env.dpkg-dist"), addition)
	g.checkMetrics(secondVersion)
	g.succeeded("order-1")
	m.send("order-3")
	g.succeeded("order-3")

	out, _ = g.next(removing)
	contains(t, out, "/var/lib/dispatcher is left", "/var/backups/dispatcher is left")
	g.called("stop dispatcher-backup.timer dispatcher.service",
		"--no-reload disable dispatcher-backup.timer dispatcher.service", "--system daemon-reload")
	if g.service() != nil || g.enabled["dispatcher.service"] {
		t.Error("the removed service runs, or is enabled")
	}
	m.do("! test -e /usr/bin/dispatcher && ! test -e /etc/dispatcher && id dispatcher && " +
		"test -s /var/lib/dispatcher/dispatcher.db && ls /var/backups/dispatcher/*/master.key")
	if len(g.blocks) > 0 {
		t.Errorf("blocks of the page that did not run: %v", g.blocks)
	}
}

// called checks the calls of systemctl since the last time.
func (g *guide) called(want ...string) {
	g.Helper()
	got := slices.DeleteFunc(g.took(), func(call string) bool { return strings.HasPrefix(call, "--version") })
	if !slices.Equal(got, want) {
		g.Errorf("calls of systemctl: %q, want %q", got, want)
	}
}

// asAdmin is the start of a command that uses the API with the admin key.
const (
	asAdmin = "DISPATCHER_KEY_FILE=/var/lib/dispatcher/admin.key dispatcher "
	list    = asAdmin + "callback list "
)

// send sends a callback to the receiver of the page.
func (m *machine) send(ref string) {
	m.Helper()
	m.do(asAdmin + "callback send --url http://127.0.0.1:9090/notify --data '{}' --ref " + ref)
}

// succeeded waits until the callback with the reference has succeeded.
func (g *guide) succeeded(ref string) {
	g.Helper()
	harness.Eventually(g, time.Minute, ref+" has succeeded", func() error {
		out, err := g.try(list + "--ref " + ref)
		if err != nil || !strings.Contains(out, "succeeded") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// checkMetrics checks the version of the running service, and that it can read what its metrics need.
func (g *guide) checkMetrics(version string) {
	g.Helper()
	out, err := g.inside("exec curl -sSfm 30 http://127.0.0.1:8081/metrics").Output()
	harness.Check(g, err)
	contains(g, string(out), `version="v`+version+`"`, "process_start_time_seconds", "process_open_fds")
}

// contains checks that a text has all parts.
func contains(tb testing.TB, text string, parts ...string) {
	tb.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			tb.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}

// same checks that two texts are equal.
func same(tb testing.TB, what, got, want string) {
	tb.Helper()
	if got != want {
		tb.Errorf("%s: %q, want %q", what, got, want)
	}
}

// installed returns a machine with the first version and a systemctl.
func installed(t *testing.T) *supervisor {
	t.Helper()
	s := startSupervisor(startMachine(t))
	run(t, "cp", deb(t, firstVersion), filepath.Join(s.root, "root"))
	s.do("apt-get install ./" + debName(firstVersion))
	return s
}

// TestCredentials starts both services with the example of a drop-in: their secrets are in files that only
// root can read.
func TestCredentials(t *testing.T) {
	s := installed(t)
	s.do(`install -d -m 700 /etc/dispatcher/credentials
		cd /etc/dispatcher/credentials
		umask 077
		echo 0123456789abcdef0123456789abcdef0123456789abcdef > admin_key
		head -c 32 /dev/urandom | base64 > master_key
		echo sqlite:/var/lib/dispatcher/own.db > database_url
		for unit in dispatcher dispatcher-backup; do
			install -D -m 644 /usr/share/doc/dispatcher/examples/credentials.conf \
				/etc/systemd/system/$unit.service.d/credentials.conf
			sed -i /redis_url/d /etc/systemd/system/$unit.service.d/credentials.conf
		done
		systemctl start dispatcher
		export DISPATCHER_KEY_FILE=/etc/dispatcher/credentials/admin_key
		dispatcher callback list
		systemctl start dispatcher-backup
		ls /var/backups/dispatcher/dispatcher-*/dispatcher.db`)
	s.took()
	same(t, "files of the service", s.do("ls /var/lib/dispatcher /var/backups/dispatcher/dispatcher-* "+
		"| grep -E 'own.db$|key|^dispatcher.db'"), "dispatcher.db\nown.db\n")
}

// TestUpgradeWithAFailingRestart upgrades a service whose settings are wrong. The package is installed all
// the same, and the service starts when the settings are right.
func TestUpgradeWithAFailingRestart(t *testing.T) {
	s := installed(t)
	s.do("systemctl start dispatcher")
	run(t, "cp", deb(t, secondVersion), filepath.Join(s.root, "root"))
	s.write("/etc/dispatcher/dispatcher.env", "DISPATCHER_WORKERS=many\n", 0o640)
	out := s.do("apt-get install -o Dpkg::Options::=--force-confold ./" + debName(secondVersion))
	contains(t, out, "dispatcher: the service did not restart")
	same(t, "dpkg --audit", s.do("dpkg --audit"), "")
	contains(t, s.do("dpkg -s dispatcher"), "Status: install ok installed", "Version: "+secondVersion)
	if s.failure() == nil || s.service() != nil {
		t.Errorf("the restart has not failed: %v", s.failure())
	}
	s.write("/etc/dispatcher/dispatcher.env", "", 0o640)
	s.do("systemctl start dispatcher && " + list)
}

// TestInstallsWithoutSystemd installs, removes and purges the deb where no systemctl is, as in a container.
func TestInstallsWithoutSystemd(t *testing.T) {
	m := startMachine(t)
	run(t, "cp", deb(t, firstVersion), filepath.Join(m.root, "root"))
	m.do("apt-get install ./" + debName(firstVersion))
	contains(t, m.do("dispatcher version"), "v"+firstVersion)
	m.do("su dispatcher -s /bin/sh -c 'dispatcher migrate --data-dir /var/lib/dispatcher'")
	m.do("apt-get remove -y dispatcher")
	m.do("test -s /etc/dispatcher/dispatcher.env && test -s /var/lib/dispatcher/dispatcher.db")
	contains(t, m.do("apt-get purge -y dispatcher"), "/var/lib/dispatcher is left")
	// Without data nothing is left.
	m.do("rm -r /var/lib/dispatcher && apt-get install ./" + debName(firstVersion))
	m.do("apt-get purge -y dispatcher && ! test -e /var/lib/dispatcher && ! test -e /etc/dispatcher")
}
