package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// ProjectCommand is the API for projects from the shell.
type ProjectCommand struct {
	Create projectCreate `cmd:"" help:"Make a project: keys, endpoints, callbacks and secrets of its own. Only the admin key of the settings may."`
	List   projectList   `cmd:"" help:"List projects, by id."`
	Set    projectSet    `cmd:"" help:"Change the defaults of a project, and nothing else."`
}

// quotasText names the quotas that a project has.
func quotasText(q client.Quotas) string {
	var parts []string
	if q.OpenCallbacks != 0 {
		parts = append(parts, fmt.Sprintf("%d open callbacks", q.OpenCallbacks))
	}
	if q.Lanes != 0 {
		parts = append(parts, fmt.Sprintf("%d lanes", q.Lanes))
	}
	return strings.Join(parts, ", ")
}

// projectFields are what can be said of a project: what callbacks get that bring none, nor get any from their
// endpoint.
type projectFields struct {
	Name string `in:"name" placeholder:"TEXT" help:"A name for people."`
	attemptChoices
	// HeaderHosts are a list that replaces the one that there is.
	HeaderHosts []string `in:"header_hosts" placeholder:"HOST,..." help:"Hosts that those of the headers go to which are credentials, such as Authorization; to all others they are not sent."`
	MaxOpen     *int64   `in:"quotas.open_callbacks" placeholder:"N" help:"Most open callbacks; 0: no bound. Needs the settings' key."`
	MaxLanes    *int64   `in:"quotas.lanes" placeholder:"N" help:"Most lanes; 0: no bound. Needs the settings' key."`
	changeFlags
}

// projectCreate makes a project.
type projectCreate struct {
	ID string `in:"id" arg:"" help:"Its id: small letters, digits, _ and -, at most 64."`
	projectFields
}

// Run makes it.
func (cmd *projectCreate) Run(c *session) error {
	return ask(c, post("/v1/projects", cmd), func(p *client.Project) {
		c.printf("%s  made (\"dispatcher key create NAME --scope send --project %[1]s\" makes a key for "+
			"it)\n", p.ID)
	})
}

// projectList lists projects.
type projectList struct{ listFlags }

// Run prints the projects.
func (cmd *projectList) Run(c *session) error {
	header, now := "id, name, state, policy, success, signer, quotas, made", time.Now()
	return list(c, cmd.listFlags, "/v1/projects", cmd, "there are no projects", header,
		func(p *client.Project) []any {
			state := ""
			if p.Paused {
				state = c.Paint("paused", console.Yellow) + " " + pausedText(&p.Pause)
			}
			return []any{
				p.ID, console.Short(p.Name, 32), state, console.Short(choiceText(p.Policy), 32),
				console.Short(choiceText(p.Success), 32),
				console.Short(choiceText(p.Signer), 32), quotasText(p.Quotas), agoOr(p.CreatedAt, now, ""),
			}
		})
}

// projectSet changes a project.
type projectSet struct {
	ID string `arg:"" help:"Id of the project."`
	projectFields
	Clear []string `enum:"policy,success,signer,name,header" placeholder:"FIELD" help:"Have these be the program's again: policy, success, signer, name, header."`
}

// Run changes it.
func (cmd *projectSet) Run(c *session) error {
	in, err := changed(c, cmd, cmd.Clear, "policy, success, signer, name or header")
	if err != nil {
		return err
	}
	r := request{http.MethodPatch, "/v1/projects/" + url.PathEscape(cmd.ID), in,
		fmt.Sprintf("there is no project %q", cmd.ID)}
	return ask(c, r, func(p *client.Project) { c.printf("%s  changed\n", p.ID) })
}

// KeyCommand is the API for API keys from the shell.
type KeyCommand struct {
	Create keyCreate `cmd:"" help:"Make an API key and print it, this once."`
	List   keyList   `cmd:"" help:"List the project's API keys, newest first, those that have ended too."`
	Revoke keyRevoke `cmd:"" help:"End an API key, at once."`
}

// keyCreate makes a key.
type keyCreate struct {
	Name      string   `in:"name" arg:"" help:"What it is for, such as \"checkout service\"."`
	Scope     []string `in:"scopes" required:"" enum:"send,read,operate,admin" placeholder:"SCOPE" help:"What it may do: send (hand over callbacks and events), read (look at everything but secrets), operate (also change callbacks, endpoints and lanes), admin (also keys, secrets, projects and the index). May be repeated. Operate includes read, admin all."`
	ExpiresIn string   `in:"expires_in" placeholder:"DURATION" help:"It ends after so long, such as 90d. Default: it does not."`
	reasonFlag
	JSON bool `help:"Print the server's answer for machines; the key is in \"key\"."`
	serverFlags
}

// Help is what key create --help says below the flags' summary.
func (*keyCreate) Help() string {
	return "The key goes to the standard output and all else to the error output, so that KEY=$(dispatcher " +
		"key create checkout --scope send) keeps it. " +
		"It needs a key of scope admin itself, such as the admin key of the settings."
}

// Run makes the key.
func (cmd *keyCreate) Run(c *session) error {
	c.json = cmd.JSON
	return ask(c, post("/v1/keys", cmd), func(k *client.NewKey) {
		end := "lasts until it is revoked"
		if !k.ExpiresAt.IsZero() {
			end = "ends " + console.ClockTime(k.ExpiresAt)
		}
		fmt.Fprintf(c.Err, "%s  %s of the project %s has the scopes %s; it %s\nThis is the only time that "+
			"the key is shown: keep it now.\n",
			k.ID, k.Name, k.Project, joined(k.Scopes, ", "), end)
		fmt.Fprintln(c.Out, k.Text)
	})
}

// keyList lists the keys.
type keyList struct{ listFlags }

// Run prints the keys.
func (cmd *keyList) Run(c *session) error {
	none := "the project has no keys (\"dispatcher key create\" makes one); the admin key of the settings " +
		"is not among them"
	header, now := "id, name, scopes, ends with, made, last used, state", time.Now()
	return list(c, cmd.listFlags, "/v1/keys", cmd, none, header, func(k *client.Key) []any {
		return []any{
			k.ID, console.Short(k.Name, 32), joined(k.Scopes, " "), "…" + k.Hint, ago(k.CreatedAt, now),
			agoOr(k.LastUsedAt, now, "never"), keyState(c, k, now),
		}
	})
}

// keyState says whether a key is valid, and until when.
func keyState(c *session, k *client.Key, now time.Time) string {
	valid := c.Paint("valid", console.StateColour(client.Succeeded))
	switch {
	case !k.RevokedAt.IsZero():
		return c.Paint("revoked "+ago(k.RevokedAt, now), console.StateColour(client.Dead))
	case k.ExpiresAt.IsZero():
		return valid
	case !k.ExpiresAt.After(now):
		return c.Paint("ended "+ago(k.ExpiresAt, now), console.StateColour(client.Dead))
	}
	return valid + " until " + console.ClockTime(k.ExpiresAt)
}

// keyRevoke ends a key.
type keyRevoke struct {
	ID string `arg:"" help:"Id of the key, key_ and 26 characters (see \"dispatcher key list\")."`
	changeFlags
}

// Run ends the key.
func (cmd *keyRevoke) Run(c *session) error {
	if strings.HasPrefix(cmd.ID, config.APIKeyPrefix) {
		return console.Wrong("this is a key itself, not its id: \"dispatcher key list\" shows the ids, " +
			"which begin with key_")
	}
	r := request{http.MethodDelete, "/v1/keys/" + url.PathEscape(cmd.ID), cmd,
		fmt.Sprintf("no key of the project has the id %q", cmd.ID)}
	return ask(c, r, func(k *client.Key) {
		c.printf("%s  %s is revoked: nobody can use it any more\n", k.ID, k.Name)
	})
}

// SecretsCommand is what concerns the secrets of a project, and what encrypts those of all.
type SecretsCommand struct {
	Get       secretsGet       `cmd:"" help:"Print the project's own secret of a use."`
	Rotate    secretsRotate    `cmd:"" help:"Give the project a new secret; the old one signs beside it for a while."`
	Reencrypt secretsReencrypt `cmd:"" help:"Re-encrypt what is stored with the first master key."`
}

// secretsGet prints a project's secret.
type secretsGet struct {
	Use     string `in:"use" arg:"" help:"What it is for: text (bearer), basic, rsa or ed25519."`
	Private bool   `help:"Of a key pair: the private key, which signs."`
	answerFlags
}

// Run prints it.
func (cmd *secretsGet) Run(c *session) error {
	return ask(c, get("/v1/secret?"+queryOf(cmd).Encode()), printSecret(c, cmd.Private))
}

// secretsRotate makes or takes a project's secret.
type secretsRotate struct {
	Use     string   `in:"use" arg:"" optional:"" help:"What it is for: text (bearer), basic, rsa or ed25519. Without it: the root secret, from which those of lanes are derived."`
	Secret  string   `in:"secret,secret" placeholder:"TEXT|@FILE|-" help:"The new one; better in a file, or on the standard input with -, than where other users of this machine see it. Default: one is made."`
	Hosts   []string `in:"hosts" placeholder:"HOST,..." help:"Hosts that it may be sent to or sign for, such as api.bank.example or api.bank.example:8443; * for a private key that may sign for all."`
	Label   string   `in:"label" placeholder:"TEXT" help:"What receivers know it by, such as a certificate's serial number."`
	Overlap string   `in:"overlap" placeholder:"DURATION" help:"How long the old one signs beside it, 24h without it. 0s: not at all, for one that leaked."`
	changeFlags
}

// Run rotates.
func (cmd *secretsRotate) Run(c *session) error {
	return ask(c, post("/v1/secret/rotate", cmd), func(s *client.RotatedSecret) {
		fmt.Fprintf(c.Err, "the project has a new secret; %s\n", oldSecret(s, ""))
		if s.RevealedSecret != nil && s.Secret != "" { // the root secret is not shown
			printSecret(c, false)(s.RevealedSecret)
		}
	})
}

// secretsReencrypt changes the master key of everything that is stored.
type secretsReencrypt struct {
	serverFlags
	reasonFlag
	JSON bool `help:"Print what was done for machines."`
}

// Help is what secrets reencrypt --help says below the flags' summary.
func (*secretsReencrypt) Help() string {
	return "To change the master key: give every process the old key and then the new one (master_key: " +
		"old,new); then the new one " +
		"first (new,old); run this until nothing is left; then give the new one alone. It needs the admin key of the settings, " +
		"goes on while the server works, and may be run again at any time."
}

// Run asks for one step after the other, and says what was done. Rows that could not be decrypted are an
// error.
func (cmd *secretsReencrypt) Run(c *session) error {
	if err := c.connect(); err != nil {
		return err
	}
	var sum, step client.Reencryption
	var bar *console.Drawing
	tracker := &console.Tracker{Message: "encrypted rows"}
	if c.ErrTerminal && !cmd.JSON {
		bar = c.NewDrawing(c.Err)
		bar.AppendTracker(tracker)
		bar.Begin()
	}
	err := error(nil)
	for more := true; more && err == nil; more = step.Next != "" {
		in := client.ReencryptRequest{From: step.Next, Change: client.Change{Reason: cmd.Reason}}
		step = client.Reencryption{}
		_, err = c.call(post("/v1/secret/reencrypt", in), &step)
		if err == nil {
			sum.KeyID, sum.Left = step.KeyID, step.Left
			sum.Done, sum.Failed = sum.Done+step.Done, sum.Failed+step.Failed
			tracker.UpdateTotal(int64(sum.Done + sum.Left))
			tracker.SetValue(int64(sum.Done))
		}
	}
	if bar != nil {
		console.EndTracker(tracker, err != nil)
		bar.End()
	}
	if err != nil {
		return err
	}
	if cmd.JSON {
		if err := c.PrintValue(struct {
			client.Reencryption
			Next *string `json:"next,omitempty"` // there is none any more
		}{Reencryption: sum}); err != nil {
			return err
		}
	} else {
		c.printf("%d rows were re-encrypted with master key %s, %d are left\n", sum.Done, sum.KeyID, sum.Left)
	}
	if sum.Failed > 0 {
		return fmt.Errorf("%d rows could not be decrypted: keep the older master keys in the list, and see "+
			"the server's log", sum.Failed)
	}
	return nil
}

// AuditCommand is the API for the audit from the shell.
type AuditCommand struct {
	List   auditList   `cmd:"" help:"List who has changed what in the project, newest first."`
	Verify auditVerify `cmd:"" help:"Check the chain over the audit of all projects; exit with 1 if it is broken."`
}

// auditList lists entries.
type auditList struct{ listFlags }

// Help is what audit list --help says below the flags' summary.
func (*auditList) Help() string {
	return "It needs a key of scope admin. --json has each entry whole, with its hash."
}

// Run prints the entries.
func (cmd *auditList) Run(c *session) error {
	none, header := "nothing was changed in the project",
		"at, who, from, action, object, before, after, reason, no."
	return list(c, cmd.listFlags, "/v1/audit", cmd, none, header, func(e *client.AuditEntry) []any {
		number := "–"
		if e.Sequence != 0 {
			number = strconv.FormatInt(e.Sequence, 10)
		}
		return []any{
			console.ClockTime(e.At), console.Short(e.Actor, 40), e.Address, e.Action,
			console.Short(e.Object, 40),
			side(e.Before), side(e.After), console.Short(e.Reason, 40), number,
		}
	})
}

// side is one side of a change in few words.
func side(text json.RawMessage) string {
	if len(text) == 0 || string(text) == "null" {
		return "–"
	}
	return console.Short(string(text), console.Widest)
}

// auditVerify checks the chain through the running server, which has the key that it is made with.
type auditVerify struct {
	serverFlags
	Expect string `in:"expect" placeholder:"SEQ:HASH" help:"A head that an earlier run has printed, or that stands in a log: the chain must have it."`
	JSON   bool   `help:"Print what was found for machines."`
}

// Help is what audit verify --help says below the flags' summary.
func (*auditVerify) Help() string {
	return "It needs the admin key of the settings. It finds entries that were changed, removed, moved or " +
		"inserted. Entries that were removed from the end, together with the head that SQL has, are found " +
		"only with --expect: keep the head that this prints in another place than the database. " +
		"The exit code is 1 if the chain is broken."
}

// Run asks for one step after the other, and ends with 1 if the chain is broken.
func (cmd *auditVerify) Run(c *session) error {
	if _, err := store.ParseAuditLink(cmd.Expect); cmd.Expect != "" && err != nil {
		return console.Wrong("--expect %s", err)
	}
	q := queryOf(cmd)
	var report client.AuditCheck
	for more := true; more; more = report.Next != "" {
		var step client.AuditCheck
		if _, err := c.call(get("/v1/audit/verify?"+q.Encode()), &step); err != nil {
			return err
		}
		step.Checked += report.Checked
		report = step
		q.Set("from", report.Next)
	}
	if cmd.JSON {
		if err := c.PrintValue(struct {
			client.AuditCheck
			Next *string `json:"next,omitempty"` // there is none any more
		}{AuditCheck: report}); err != nil {
			return err
		}
	} else {
		showAuditCheck(c, &report)
	}
	if !report.Sound {
		return console.ErrShown
	}
	return nil
}

// showAuditCheck prints what was found, for people.
func showAuditCheck(c *session, r *client.AuditCheck) {
	c.printf("checked %d entries\n", r.Checked)
	if r.Unchained > 0 {
		c.printf("%d entries of the last seconds are not chained yet\n", r.Unchained)
	}
	if b := r.Broken; b != nil {
		c.printf("%s at entry %d: %s\n", c.Paint("the chain is broken", console.Red), b.Sequence,
			meaning(b.Fault))
		if b.ID != "" {
			c.printf("id: %s\n", b.ID)
		}
		return
	}
	c.printf("%s\nhead: %s\n", c.Paint("the chain is sound", console.Green), r.Head)
}
