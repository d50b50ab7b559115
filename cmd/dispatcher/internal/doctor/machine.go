package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/machine"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// checkMasterKey checks the keys as a start does: each key id in SQL must be among them, and must decrypt.
func checkMasterKey(f *facts) diagnosis {
	keys, database := f.MasterKey, &f.sql
	if len(keys) == 0 {
		path := filepath.Join(f.DataDir, config.MasterKeyFile)
		key, err := config.ReadSecretFile(path)
		switch {
		case err == nil:
			keys = []string{key}
		case len(database.sealed) > 0:
			return fails("restore "+config.MasterKeyFile+
				" from the backup of the data directory, or give the key as master_key",
				"no key, but the database has rows encrypted with key %s", database.sealed[0].KeyID)
		case isMissing(path):
			return fine("none yet: the first start creates %s", path)
		default:
			return fails("fix the permissions of the file", "%s", err)
		}
	}
	ring, err := secret.NewKeyring(keys)
	switch {
	case err != nil:
		return fails("give the base64 of 32 bytes, for example from \"openssl rand -base64 32\"", "%s", err)
	case database.err != nil && database.absent:
		return fine("readable; nothing is encrypted yet")
	case database.err != nil || database.readErr != nil:
		return warns("fix the database first", "readable, but not tested: the encrypted rows cannot be read")
	case len(database.sealed) == 0:
		return fine("readable; nothing is encrypted yet")
	}
	if problems := ring.Check(database.sealed); len(problems) > 0 {
		lines := make([]string, len(problems))
		for i, p := range problems {
			lines[i] = p.String()
		}
		return fails("add the old key to master_key, after the current one; serve does not start without it",
			"%s; the current key is %s", strings.Join(lines, "; "), ring.KeyID())
	}
	var old []string
	for i := range database.sealed {
		if id := database.sealed[i].KeyID; id != ring.KeyID() && !slices.Contains(old, id) {
			old = append(old, id)
		}
	}
	if len(old) > 0 {
		return fine("decrypts all stored secrets; the older key %s is still in use: keep it until "+
			"\"dispatcher secrets reencrypt\" reports 0 rows left", strings.Join(old, ", "))
	}
	return fine("decrypts all stored secrets")
}

// checkAdminKey checks the key of the settings, or the file in the data directory: its length and its
// permissions.
func checkAdminKey(s *facts) diagnosis {
	key, from := s.AdminKey, "set"
	if key == "" {
		path := filepath.Join(s.DataDir, config.AdminKeyFile)
		var err error
		key, err = config.ReadSecretFile(path)
		if err != nil {
			if isMissing(path) {
				return fine("none yet: serve generates one and writes it to %s", path)
			}
			return fails("fix the permissions of the file", "%s", err)
		}
		if len(key) < config.MinAdminKey {
			return fails("delete the file: the next start generates a key",
				"%s: the key %s", path, config.ShortAdminKey(key))
		}
		from = "in " + path
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
			return warns("chmod 600 "+path, "%s, and other users can read the file", from)
		}
	}
	return fine("%s", from)
}

func isMissing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// privateNetworks are the networks of an operator's own machines. linkLocal has the metadata service of
// clouds, which returns credentials.
var privateNetworks = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("::1/128"),
	netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("fe80::/10"), linkLocal,
}

var linkLocal = netip.MustParsePrefix("169.254.0.0/16")

// checkEgress lists the entries of egress_allow that allow requests to networks that are not public.
func checkEgress(s *facts) diagnosis {
	strict, err := outbound.NewGuard(nil)
	if err != nil {
		return fails("report this: it is a bug in dispatcher", "%s", err)
	}
	guard, err := outbound.NewGuard(s.EgressAllow)
	if err != nil {
		return fails("fix egress_allow", "%s", err)
	}
	var opened, harmless, closed []string
	metadata := false
	for _, entry := range s.EgressAllow {
		network, err := netip.ParsePrefix(entry)
		if err != nil {
			addr, err := netip.ParseAddr(strings.Trim(entry, "[]"))
			if err != nil {
				if guard.CheckURL("http://"+strings.TrimSpace(entry)+"/") != nil {
					closed = append(closed, entry)
				} else {
					opened = append(opened, entry+" (all its addresses except loopback and link-local)")
				}
				continue
			}
			network = netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen())
		}
		metadata = metadata || network.Overlaps(linkLocal)
		private := slices.ContainsFunc(privateNetworks, network.Overlaps) ||
			strict.CheckURL("http://"+net.JoinHostPort(network.Addr().String(), "80")+"/") != nil
		if private {
			opened = append(opened, entry)
		} else {
			harmless = append(harmless, entry)
		}
	}
	switch {
	case metadata:
		return warns("exclude 169.254.0.0/16 from egress_allow: every sender could read the credentials of "+
			"this machine there",
			"egress_allow includes the cloud's metadata address: %s", strings.Join(opened, ", "))
	case len(closed) > 0:
		return warns("replace the name by an address such as 127.0.0.1, or remove it",
			"egress_allow has names of this machine, which have no effect: %s", strings.Join(closed, ", "))
	case len(opened) > 0:
		return warns("keep only what you need: every sender can make requests to these",
			"egress_allow includes private networks: %s", strings.Join(opened, ", "))
	case len(harmless) > 0:
		return fine("egress_allow has only public networks, with any port: %s", strings.Join(harmless, ", "))
	}
	return fine("only the public internet")
}

// checkAddresses checks that a server can listen on its addresses. It closes them at once.
func checkAddresses(f *facts) diagnosis {
	addresses := []string{f.OpsListen}
	if f.Has(config.RoleAPI) || f.Has(config.RoleUI) {
		addresses = append(addresses, f.Listen)
	}
	var used []string
	for _, address := range addresses {
		l, err := net.Listen("tcp", address)
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			used = append(used, address)
		case err != nil:
			return fails("fix listen or ops_listen: serve does not start otherwise", "%s", err)
		default:
			l.Close() // nothing was written, so no error matters
		}
	}
	if len(used) > 0 {
		return fine("%s in use; that is right only if the server runs now", strings.Join(used, " and "))
	}
	return fine("%s are free", strings.Join(addresses, " and "))
}

// probeName never exists. A name server that reports so works.
const probeName = "dispatcher-doctor.invalid"

// askDNS returns why no name server responds. It returns nil if one does, even with "no such host".
func (d *doctor) askDNS(ctx context.Context) error {
	_, err := d.lookup(ctx, probeName)
	if answer, ok := errors.AsType[*net.DNSError](err); ok && answer.IsNotFound {
		return nil
	}
	return err
}

func checkDNS(f *facts) diagnosis {
	if f.dns == nil {
		return fine("a name server responds")
	}
	return fails("fix the name servers in /etc/resolv.conf; until then callbacks to host names are "+
		"postponed, not counted", "no name server responds: %s", f.dns)
}

// Limits of free disk space: below lowSpace is a warning, below minSpace an error.
const (
	lowSpace = 1 << 30
	minSpace = 64 << 20
)

// checkDataDir checks that the data directory is writable. It writes a small file, because permissions
// alone do not show a full or read-only disk.
func checkDataDir(f *facts) diagnosis {
	switch {
	case f.Postgres():
		return fine("not used with PostgreSQL")
	case isMissing(f.DataDir):
		return warns("nothing before the first start, which creates it; otherwise fix data_dir, "+
			"which also has the keys", "%s does not exist", f.DataDir)
	}
	if err := tryWriting(f.DataDir); err != nil {
		return fails("fix the owner and the permissions of the directory, or free space on its disk",
			"%s is not writable: %s", f.DataDir, err)
	}
	return fine("%s is writable", f.DataDir)
}

// checkDatabaseDisk checks the disk of a database that is not in the data directory.
func checkDatabaseDisk(f *facts) (d diagnosis) {
	if dir := filepath.Dir(f.SQLitePath()); dir != filepath.Clean(f.DataDir) {
		d = checkDisk(f, dir)
	}
	return d
}

// checkDisk checks the free space of SQLite's disk.
func checkDisk(f *facts, dir string) (d diagnosis) {
	if f.Postgres() || isMissing(f.DataDir) {
		return d
	}
	free, total, err := machine.DiskSpace(dir)
	found := fmt.Sprintf("%s free of %s at %s", console.SizeText(free), console.SizeText(total), dir)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
	case err != nil:
		d = warns("check the disk yourself", "%s: %s", dir, err)
	case free < minSpace:
		d = fails("free space: on a full disk requests get 503, and nothing is sent", "%s", found)
	case free < lowSpace || free < total/10:
		d = warns("free space, or shorten retention_payload and retention_metadata", "%s", found)
	default:
		d = fine("%s", found)
	}
	return d
}

// tryWriting writes a small file and removes it.
func tryWriting(dir string) error {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}

// otherFiles are the files that a process opens apart from attempts and the database: listeners, API clients,
// log and data files.
const otherFiles = 128

// checkFiles compares the limit of open files with the need of all workers. Each attempt needs a socket.
func checkFiles(s *facts) diagnosis {
	limit, err := machine.OpenFiles()
	if err != nil {
		return fine("the limit is unknown on this system")
	}
	need := uint64(s.Workers + s.DatabaseMaxConns + otherFiles)
	found := fmt.Sprintf("the limit is %d; %d workers need about %d", limit, s.Workers, need)
	const cure = "raise the limit (LimitNOFILE in the unit, ulimit -n, the container's ulimits), or lower " +
		"workers: attempts without a free file are postponed, not counted"
	switch {
	case limit < need:
		return fails(cure, "%s", found)
	case limit < 2*need:
		return warns(cure, "%s, and the same number for idle connections", found)
	}
	return fine("%s", found)
}

// checkTimes warns if a shutdown interrupts attempts, because these are sent again.
func checkTimes(s *facts) diagnosis {
	usual := accept.PaymentPolicy().Timeout
	found := fmt.Sprintf("the default timeout of an attempt is %s; a shutdown waits %s",
		schedule.FormatDuration(usual), schedule.FormatDuration(s.DrainTimeout))
	if s.DrainTimeout < usual {
		return warns("raise drain_timeout above "+schedule.FormatDuration(usual)+", and the kill timeout of "+
			"systemd or Kubernetes above that: interrupted attempts are sent again", "%s", found)
	}
	return fine("%s", found)
}

// checkSignIn checks whether people can sign in. It cannot check the client's secret: that needs a person.
func checkSignIn(f *facts) diagnosis {
	switch {
	case f.OIDCIssuer == "":
		return diagnosis{}
	case f.signIn != nil:
		return fails("compare oidc_issuer with the provider's documentation, and check that this machine "+
			"reaches it; until then only API keys open the admin UI", "%s: %s", f.OIDCIssuer, f.signIn)
	}
	return fine("%s responds; the redirect URI of its client must be %s", f.OIDCIssuer,
		f.SignIn().RedirectURL)
}

// checkSinks names the sinks of alert_sink without their credentials.
func checkSinks(f *facts) diagnosis {
	sinks, _ := f.Sinks() // they were validated with the settings
	if len(sinks) == 0 {
		return diagnosis{}
	}
	var all, open []string
	for _, c := range sinks {
		name := c.Type + " " + c.Host()
		all = append(all, name)
		if strings.HasPrefix(c.URL, "http://") {
			open = append(open, name)
		}
	}
	if len(open) > 0 {
		return warns("use https:// in alert_sink: its URLs are credentials", "without TLS: %s",
			strings.Join(open, ", "))
	}
	return fine("%s", strings.Join(all, ", "))
}
