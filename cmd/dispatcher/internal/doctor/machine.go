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

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/machine"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

func judgeMasterKey(f *facts) diagnosis {
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
				"there is none, and the database has rows encrypted with key %s", database.sealed[0].KeyID)
		case isMissing(path):
			return fine("none yet: the first start makes %s", path)
		default:
			return fails("mend the rights of the file", "%s", err)
		}
	}
	ring, err := secret.NewKeyring(keys)
	switch {
	case err != nil:
		return fails("give the base64 of 32 bytes, for example from \"openssl rand -base64 32\"", "%s", err)
	case database.err != nil && database.absent:
		return fine("it can be read; there is nothing to decrypt yet")
	case database.err != nil || database.readErr != nil:
		return warns("see what is wrong with the database",
			"it can be read; what is encrypted could not be, so it was not tried on it")
	case len(database.sealed) == 0:
		return fine("it can be read; nothing is encrypted yet")
	}
	if problems := ring.Check(database.sealed); len(problems) > 0 {
		lines := make([]string, len(problems))
		for i, p := range problems {
			lines[i] = p.String()
		}
		return fails("give the master key that it was encrypted with, beside the present one (a list: the "+
			"new one first); serve does not start without it",
			"%s; the key that encrypts is %s", strings.Join(lines, "; "), ring.KeyID())
	}
	var old []string
	for i := range database.sealed {
		if id := database.sealed[i].KeyID; id != ring.KeyID() && !slices.Contains(old, id) {
			old = append(old, id)
		}
	}
	if len(old) > 0 {
		return fine("decrypts what is stored; the older key %s is in use, so keep it in the list until "+
			"\"dispatcher secrets reencrypt\" has left nothing", strings.Join(old, ", "))
	}
	return fine("decrypts what is stored")
}

func judgeAdminKey(s *facts) diagnosis {
	key, from := s.AdminKey, "set"
	if key == "" {
		path := filepath.Join(s.DataDir, config.AdminKeyFile)
		var err error
		key, err = config.ReadSecretFile(path)
		if err != nil {
			if isMissing(path) {
				return fine("none yet: serve makes one and writes it to %s", path)
			}
			return fails("mend the rights of the file", "%s", err)
		}
		if len(key) < config.MinAdminKey {
			return fails("remove the file: the next start makes one", "%s: it %s", path,
				config.ShortAdminKey(key))
		}
		from = "in " + path
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
			return warns("chmod 600 "+path, "%s, and others may read the file", from)
		}
	}
	return fine("%s", from)
}

func isMissing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// privateNetworks are those that an operator's own machines are in; the last one serves the credentials of
// cloud machines.
var privateNetworks = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("::1/128"),
	netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("fe80::/10"), linkLocal,
}

var linkLocal = netip.MustParsePrefix("169.254.0.0/16")

// judgeEgress names the exceptions that let requests into networks that are not public.
func judgeEgress(s *facts) diagnosis {
	strict, err := outbound.NewGuard(nil)
	if err != nil {
		return fails("none: this is a fault of the program", "%s", err)
	}
	guard, err := outbound.NewGuard(s.EgressAllow)
	if err != nil {
		return fails("correct egress_allow", "%s", err)
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
					opened = append(opened, entry+" (whatever it resolves to but this machine and its links)")
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
		return warns("narrow egress_allow so that it leaves out 169.254.0.0/16: whoever may send could "+
			"read the credentials of this machine there",
			"egress_allow opens the cloud's metadata address: %s", strings.Join(opened, ", "))
	case len(closed) > 0:
		return warns("add its address, such as 127.0.0.1, or leave it out",
			"egress_allow has names of this machine, which lead nowhere: %s", strings.Join(closed, ", "))
	case len(opened) > 0:
		return warns("keep only what must be reached: whoever may send can make requests there",
			"egress_allow opens what is not on the public internet: %s", strings.Join(opened, ", "))
	case len(harmless) > 0:
		return fine("egress_allow names public networks only, on any port: %s", strings.Join(harmless, ", "))
	}
	return fine("the public internet only")
}

// askedName never exists: a name server that says so works.
const askedName = "dispatcher-doctor.invalid"

// askNames says why no name server answers; nil: one does, even if it does not know the name.
func (d *doctor) askNames(ctx context.Context) error {
	_, err := d.lookup(ctx, askedName)
	if answer, ok := errors.AsType[*net.DNSError](err); ok && answer.IsNotFound {
		return nil
	}
	return err
}

func judgeNames(f *facts) diagnosis {
	if f.names == nil {
		return fine("a name server answers")
	}
	return fails("mend the name servers in /etc/resolv.conf: until one answers, callbacks to host names "+
		"wait, uncharged", "no name server answers: %s", f.names)
}

// How little free space is worth a warning, and how little is an error.
const (
	littleSpace = 1 << 30
	noSpace     = 64 << 20
)

func judgeDataDir(f *facts) diagnosis {
	switch {
	case f.Postgres():
		return fine("not used with PostgreSQL")
	case isMissing(f.DataDir):
		return warns("none needed if this is the first start: serve makes it; otherwise mend data_dir, "+
			"which also holds the keys", "%s is not there", f.DataDir)
	}
	if err := tryWriting(f.DataDir); err != nil {
		return fails("mend the owner and the rights of the directory, or free space on its disk",
			"%s cannot be written to: %s", f.DataDir, err)
	}
	return fine("%s can be written to", f.DataDir)
}

// judgeDatabaseDisk is about the disk of a database that is not in the data directory.
func judgeDatabaseDisk(f *facts) (d diagnosis) {
	if dir := filepath.Dir(f.SQLitePath()); dir != filepath.Clean(f.DataDir) {
		d = judgeDisk(f, dir)
	}
	return d
}

func judgeDisk(f *facts, dir string) (d diagnosis) {
	if f.Postgres() || isMissing(f.DataDir) {
		return d
	}
	free, total, err := machine.DiskSpace(dir)
	found := fmt.Sprintf("%s free of %s at %s", console.SizeText(free), console.SizeText(total), dir)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
	case err != nil:
		d = warns("look at the disk by hand", "%s: %s", dir, err)
	case free < noSpace:
		d = fails("free space: SQLite that cannot grow accepts nothing (503) and sends nothing", "%s", found)
	case free < littleSpace || free < total/10:
		d = warns("free space, or shorten retention_payload and retention_metadata", "%s", found)
	default:
		d = fine("%s", found)
	}
	return d
}

// tryWriting writes a small file to the disk and removes it.
func tryWriting(dir string) error {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}

// otherFiles are what a process opens beside attempts and the database: listeners, clients of the API, log,
// files.
const otherFiles = 128

func judgeFiles(s *facts) diagnosis {
	limit, err := machine.OpenFiles()
	if err != nil {
		return fine("the limit is not known on this system")
	}
	need := uint64(s.Workers + s.DatabaseMaxConns + otherFiles)
	found := fmt.Sprintf("%d may be open; %d workers need about %d", limit, s.Workers, need)
	const cure = "raise the limit (LimitNOFILE in the unit, ulimit -n, the container's ulimits), or lower " +
		"workers: attempts without a file are put back uncharged"
	switch {
	case limit < need:
		return fails(cure, "%s", found)
	case limit < 2*need:
		return warns(cure, "%s, and kept-alive connections as many again", found)
	}
	return fine("%s", found)
}

func judgeTimes(s *facts) diagnosis {
	usual := accept.PaymentPolicy().Timeout
	found := fmt.Sprintf("an attempt takes up to %s by default, its lease outlasts it; a shutdown waits %s",
		schedule.FormatDuration(usual), schedule.FormatDuration(s.DrainTimeout))
	if s.DrainTimeout < usual {
		return warns("raise drain_timeout above "+schedule.FormatDuration(usual)+
			" (and what kills the process after SIGTERM above that): what is cut off is sent again", "%s",
			found)
	}
	return fine("%s", found)
}
