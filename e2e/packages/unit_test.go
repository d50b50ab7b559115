package packages

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A unit is a unit of systemd with its drop-ins: the values of each setting, in order.
type unit map[string][]string

// parseUnit adds the settings of a file.
func (u unit) parseUnit(text string) {
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		name, value, found := strings.Cut(strings.TrimSpace(line), "=")
		if found && !strings.HasPrefix(name, "#") {
			u[name] = append(u[name], value)
		}
	}
}

// words returns all words of a setting that may be repeated.
func (u unit) words(name string) (all []string) {
	for _, value := range u[name] {
		all = append(all, strings.Fields(value)...)
	}
	return all
}

// one returns the value of a setting that may not be repeated, or "".
func (u unit) one(name string) string {
	if values := u[name]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

// unit reads an installed unit and its drop-ins.
func (m *machine) unit(name string) (unit, error) {
	u := unit{}
	files := []string{filepath.Join(m.root, "/usr/lib/systemd/system", name)}
	drops, err := filepath.Glob(filepath.Join(m.root, "/etc/systemd/system", name+".d", "*.conf"))
	if err != nil {
		return nil, err
	}
	for _, path := range append(files, drops...) {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		u.parseUnit(string(text))
	}
	return u, nil
}

// credentials is where the service finds its credentials.
const credentials = "/run/credentials"

// specifiers are those that our units use.
var specifiers = strings.NewReplacer("%S", "/var/lib", "%C", "/var/cache", "%d", credentials, "%%", "%")

// environment returns the variables that systemd sets for a service: those of the unit, overridden by those
// of its files.
func (m *machine) environment(u unit) (map[string]string, error) {
	env := map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/var/lib/dispatcher",
		"USER": u.one("User")}
	for _, pair := range u.words("Environment") {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = specifiers.Replace(value)
	}
	for _, file := range u["EnvironmentFile"] {
		name, optional := strings.CutPrefix(file, "-")
		text, err := os.ReadFile(filepath.Join(m.root, name))
		if err != nil && !(os.IsNotExist(err) && optional) {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if name, value, found := strings.Cut(line, "="); found && !strings.HasPrefix(line, "#") {
				env[name] = value
			}
		}
	}
	if len(u["LoadCredential"]) > 0 {
		env["CREDENTIALS_DIRECTORY"] = credentials
	}
	return env, nil
}

// commandLine returns the words of ExecStart with the values of variables. A variable never becomes several
// words.
func commandLine(u unit, env map[string]string) (words []string) {
	for _, word := range strings.Fields(u.one("ExecStart")) {
		word = os.Expand(specifiers.Replace(word), func(name string) string { return env[name] })
		words = append(words, word)
	}
	return words
}

// directories are the settings that name directories of a service, and where these are.
var directories = map[string]string{"StateDirectory": "/var/lib/", "CacheDirectory": "/var/cache/"}

// writable creates the directories of a unit and returns those that the service may write to.
func (m *machine) writable(u unit) (all []string, err error) {
	for setting, parent := range directories {
		for _, name := range u.words(setting) {
			out, err := m.try(fmt.Sprintf("install -d -m %s -o %s -g %s %s", u.one(setting+"Mode"),
				u.one("User"), u.one("Group"), parent+name))
			if err != nil {
				return nil, fmt.Errorf("%s: %w: %s", setting, err, out)
			}
			all = append(all, parent+name)
		}
	}
	for _, name := range u.words("ReadWritePaths") {
		name, optional := strings.CutPrefix(name, "-")
		if _, err := os.Stat(filepath.Join(m.root, name)); err == nil || !optional {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all, nil
}

// loadCredentials copies the credentials of a unit for its user.
func (m *machine) loadCredentials(u unit) error {
	for _, pair := range u["LoadCredential"] {
		id, from, _ := strings.Cut(pair, ":")
		out, err := m.try(fmt.Sprintf("install -D -m 400 -o %s %s %s/%s && chmod 755 %s", u.one("User"), from,
			credentials, id, credentials))
		if err != nil {
			return fmt.Errorf("LoadCredential=%s: %w: %s", pair, err, out)
		}
	}
	return nil
}

// sandbox is the start of a service: $0 is the root, $1 the writable directories, $2 user and $3 group, $4
// the umask. The rest is the command with its environment. Limits are left out: a container may not raise
// them.
const sandbox = `
for dir in $1; do mount --bind "$0$dir" "$0$dir"; done
mount -o remount,bind,ro "$0"
mount -t tmpfs tmpfs "$0/tmp"
umask "$4"
user=$2 group=$3
shift 4
exec $TRACE chroot "$0" setpriv --reuid="$user" --regid="$group" --clear-groups \
  --inh-caps=-all --bounding-set=-all --no-new-privs env -i "$@"`

// prepared returns the command that starts a service as its unit says, with additional variables. If trace is
// not empty, this file gets the system calls of the service.
func (m *machine) prepared(u unit, trace string, extra ...string) (*exec.Cmd, error) {
	env, err := m.environment(u)
	if err != nil {
		return nil, err
	}
	writable, err := m.writable(u)
	if err == nil {
		err = m.loadCredentials(u)
	}
	if err != nil {
		return nil, err
	}
	args := []string{sandbox, strings.Join(writable, " "), u.one("User"), u.one("Group"), u.one("UMask")}
	for name, value := range env {
		args = append(args, name+"="+value)
	}
	args = slices.Concat(args, extra, commandLine(u, env))
	cmd := m.inside(`script=$1; shift; exec unshare --mount sh -ec "$script" "$0" "$@"`, args...)
	if trace != "" {
		cmd.Env = append(cmd.Env, "TRACE=strace -D -f -qq -o "+trace)
	}
	return cmd, nil
}
