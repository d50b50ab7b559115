package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// ProjectCommand has the commands for projects.
type ProjectCommand struct {
	Create projectCreate `cmd:"" help:"Create a project with its own keys, endpoints, callbacks and secrets. Needs the admin key of the settings."`
	List   projectList   `cmd:"" help:"List projects, by id."`
	Get    projectGet    `cmd:"" help:"Show one project with its defaults and quotas."`
	Set    projectSet    `cmd:"" help:"Change the defaults of a project. Only the given fields change."`
}

// quotasText formats the quotas of a project.
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

// projectFields are the flags of project create and project set: the defaults of callbacks that have no value
// of their own and get none from their endpoint.
type projectFields struct {
	Name string `in:"name" placeholder:"TEXT" help:"Display name."`
	attemptChoices
	// HeaderHosts replaces the existing list.
	HeaderHosts       []string `in:"header_hosts" placeholder:"HOST" help:"Hosts that get credential headers such as Authorization. Other hosts do not get them."`
	ReconcileAt       string   `in:"reconcile.at" placeholder:"HH:MM" help:"Reconcile the day before at this time of each day. Needs --reconcile-timezone."`
	ReconcileTimezone string   `in:"reconcile.timezone" placeholder:"ZONE" help:"Zone of that time and of the days, such as Asia/Shanghai."`
	ExpectList        bool     `in:"reconcile.expect_list" help:"A day without a list needs attention: see \"dispatcher reconcile expect\"."`
	MaxOpen           *int64   `in:"quotas.open_callbacks" placeholder:"N" help:"Maximum number of open callbacks; 0: no limit. Needs the admin key of the settings."`
	MaxLanes          *int64   `in:"quotas.lanes" placeholder:"N" help:"Maximum number of lanes; 0: no limit. Needs the admin key of the settings."`
	changeFlags
}

// projectCreate creates a project.
type projectCreate struct {
	ID string `in:"id" arg:"" help:"Id: up to 64 lower-case letters, digits, _ and -."`
	projectFields
}

// Run creates the project.
func (cmd *projectCreate) Run(c *session) error {
	return printResponse(c, post("/v1/projects", cmd), func(p *client.Project) {
		c.printf("%s  created (next: \"dispatcher key create NAME --scope send --project %[1]s\")\n", p.ID)
	})
}

// projectList lists projects.
type projectList struct{ listFlags }

// Run prints the projects.
func (cmd *projectList) Run(c *session) error {
	header, now := "id, name, state, policy, success, signer, quotas, created", time.Now()
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

// projectGet shows one project.
type projectGet struct {
	ID string `arg:"" help:"Id of the project."`
	answerFlags
}

// Run prints the project.
func (cmd *projectGet) Run(c *session) error {
	r := get("/v1/projects/" + url.PathEscape(cmd.ID)).onMissing(noProject(cmd.ID))
	return printResponse(c, r, func(p *client.Project) {
		state := c.Paint("sending", console.Green)
		if p.Paused {
			state = c.Paint("paused", console.Yellow) + " " + pausedText(&p.Pause)
		}
		chosen := func(choice client.Choice) string {
			return cmp.Or(choiceText(choice), "the program's default")
		}
		c.Lines(12, slices.Concat([]string{
			"project", p.ID, "name", p.Name, "state", state, "policy", chosen(p.Policy),
			"success", chosen(p.Success), "signer", chosen(p.Signer),
		}, headerLines(p.Headers), []string{
			"header hosts", strings.Join(p.HeaderHosts, " "), "quotas", cmp.Or(quotasText(p.Quotas), "none"),
			"reconciled", reconcilingText(p.Reconcile),
			"created", console.ClockTime(p.CreatedAt), "changed", console.ClockTime(p.UpdatedAt),
		})...)
	})
}

// reconcilingText formats a daily reconciliation; empty: there is none.
func reconcilingText(r *client.ReconcileSettings) string {
	if r == nil {
		return ""
	}
	text := "daily at " + r.At + " " + r.Timezone
	if r.ExpectList {
		text += ", with a list"
	}
	return text
}

// noProject is the error for an id that does not exist.
func noProject(id string) string { return fmt.Sprintf("there is no project %q", id) }

// projectSet changes a project.
type projectSet struct {
	ID string `arg:"" help:"Id of the project."`
	projectFields
	Clear []string `enum:"policy,success,signer,name,header,reconcile" placeholder:"FIELD" help:"Reset these to the program's defaults: policy, success, signer, name, header, reconcile."`
}

// Run changes the project.
func (cmd *projectSet) Run(c *session) error {
	in, err := changed(c, cmd, cmd.Clear, "policy, success, signer, name, header or reconcile")
	if err != nil {
		return err
	}
	r := request{http.MethodPatch, "/v1/projects/" + url.PathEscape(cmd.ID), in, noProject(cmd.ID)}
	return printResponse(c, r, func(p *client.Project) { c.printf("%s  changed\n", p.ID) })
}

// KeyCommand has the commands for API keys.
type KeyCommand struct {
	Create keyCreate `cmd:"" help:"Create an API key and print it. It cannot be printed again."`
	List   keyList   `cmd:"" help:"List the project's API keys, newest first, including expired and revoked ones."`
	Revoke keyRevoke `cmd:"" help:"Revoke an API key. It stops working at once."`
}

// keyCreate creates a key.
type keyCreate struct {
	Name      string   `in:"name" arg:"" help:"Name of the key, such as \"checkout service\"."`
	Scope     []string `in:"scopes" required:"" enum:"send,read,operate,admin,resend" placeholder:"SCOPE" help:"Scope. send: submit callbacks and events. read: read everything except secrets. operate: read, and change callbacks, endpoints and lanes. admin: everything, with keys, secrets and projects. With --endpoint: read or resend (read, and send callbacks again). Can be repeated."`
	Endpoint  string   `in:"endpoint" placeholder:"ID" help:"Id or external id of an endpoint. The key then reaches only the callbacks of this endpoint. Default: the whole project."`
	ExpiresIn string   `in:"expires_in" placeholder:"DURATION" help:"Lifetime of the key, such as 90d. Default: unlimited."`
	reasonFlag
	JSON bool `help:"Print the server's response as JSON; the key is in \"key\"."`
	serverFlags
}

// Help is the text below the summary of key create --help.
func (*keyCreate) Help() string {
	return "The key goes to the standard output and everything else to the error output. So " +
		"KEY=$(dispatcher key create checkout --scope send) stores it. " +
		"Needs a key with the scope admin, such as the admin key of the settings."
}

// Run creates the key.
func (cmd *keyCreate) Run(c *session) error {
	c.json = cmd.JSON
	return printResponse(c, post("/v1/keys", cmd), func(k *client.NewKey) {
		end := "does not expire"
		if !k.ExpiresAt.IsZero() {
			end = "expires " + console.ClockTime(k.ExpiresAt)
		}
		of := "project " + k.Project
		if k.EndpointID != "" {
			of = "endpoint " + k.EndpointID
		}
		fmt.Fprintf(c.Err, "%s  %s of %s, scopes %s, %s\n"+
			"Save the key now: it is not shown again.\n",
			k.ID, k.Name, of, joined(k.Scopes, ", "), end)
		fmt.Fprintln(c.Out, k.Text)
	})
}

// keyList lists the keys.
type keyList struct{ listFlags }

// Run prints the keys.
func (cmd *keyList) Run(c *session) error {
	none := "the project has no keys (\"dispatcher key create\" makes one); " +
		"the admin key of the settings is not listed"
	header, now := "id, name, scopes, last characters, created, last used, state", time.Now()
	return list(c, cmd.listFlags, "/v1/keys", cmd, none, header, func(k *client.Key) []any {
		return []any{
			k.ID, console.Short(k.Name, 32), keyScopes(k), "…" + k.Hint, ago(k.CreatedAt, now),
			agoOr(k.LastUsedAt, now, "never"), keyState(c, k, now),
		}
	})
}

// keyScopes formats the scopes of a key, and the endpoint that it is for.
func keyScopes(k *client.Key) string {
	if k.EndpointID != "" {
		return joined(k.Scopes, " ") + " of " + k.EndpointID
	}
	return joined(k.Scopes, " ")
}

// keyState formats whether a key is valid, and until when.
func keyState(c *session, k *client.Key, now time.Time) string {
	valid := c.Paint("valid", console.StateColour(client.Succeeded))
	switch {
	case !k.RevokedAt.IsZero():
		return c.Paint("revoked "+ago(k.RevokedAt, now), console.StateColour(client.Dead))
	case k.ExpiresAt.IsZero():
		return valid
	case !k.ExpiresAt.After(now):
		return c.Paint("expired "+ago(k.ExpiresAt, now), console.StateColour(client.Dead))
	}
	return valid + " until " + console.ClockTime(k.ExpiresAt)
}

// keyRevoke revokes a key.
type keyRevoke struct {
	ID string `arg:"" help:"Id of the key, key_ and 26 characters (see \"dispatcher key list\")."`
	changeFlags
}

// Run revokes the key.
func (cmd *keyRevoke) Run(c *session) error {
	if strings.HasPrefix(cmd.ID, config.APIKeyPrefix) {
		return console.Wrong("give the id of the key, not the key: " +
			"\"dispatcher key list\" shows the ids, which begin with key_")
	}
	r := request{http.MethodDelete, "/v1/keys/" + url.PathEscape(cmd.ID), cmd,
		fmt.Sprintf("no key of the project has the id %q", cmd.ID)}
	return printResponse(c, r, func(k *client.Key) {
		c.printf("%s  %s is revoked and no longer works\n", k.ID, k.Name)
	})
}

// SecretsCommand has the commands for a project's secrets and for re-encryption of all projects' secrets.
type SecretsCommand struct {
	Get       secretsGet       `cmd:"" help:"Print a secret of the project."`
	Rotate    secretsRotate    `cmd:"" help:"Replace a secret of the project. Both secrets sign for a while."`
	Reencrypt secretsReencrypt `cmd:"" help:"Re-encrypt stored secrets with the first master key."`
}

// secretsGet prints a project's secret.
type secretsGet struct {
	Use     string `in:"use" arg:"" help:"Use of the secret: text (bearer), basic, rsa or ed25519."`
	Private bool   `help:"Print the private key of a key pair."`
	answerFlags
}

// Run prints the secret.
func (cmd *secretsGet) Run(c *session) error {
	return printResponse(c, get("/v1/secret?"+queryOf(cmd).Encode()), printSecret(c, cmd.Private))
}

// secretsRotate replaces a project's secret with a generated or a given one.
type secretsRotate struct {
	Use     string   `in:"use" arg:"" optional:"" help:"Use of the secret: text (bearer), basic, rsa or ed25519. Default: the root secret, from which the secrets of lanes are derived."`
	Secret  string   `in:"secret,secret" placeholder:"TEXT|@FILE|-" help:"New secret. Prefer @FILE or -: other users of this machine can see arguments. Default: a generated one."`
	Hosts   []string `in:"hosts" placeholder:"HOST" help:"Hosts that the secret can be sent to or sign for, such as api.bank.example or api.bank.example:8443; * for a private key that can sign for all hosts."`
	Label   string   `in:"label" placeholder:"TEXT" help:"Name of the secret at receivers, such as a certificate's serial number."`
	Overlap string   `in:"overlap" placeholder:"DURATION" help:"How long the old secret signs too. Use 0s if it leaked. Default: 1d."`
	changeFlags
}

// Run replaces the secret.
func (cmd *secretsRotate) Run(c *session) error {
	return printResponse(c, post("/v1/secret/rotate", cmd), func(s *client.RotatedSecret) {
		fmt.Fprintf(c.Err, "the project has a new secret; %s\n", oldSecret(s, ""))
		if s.RevealedSecret != nil && s.Secret != "" { // the root secret is not printed
			printSecret(c, false)(s.RevealedSecret)
		}
	})
}

// secretsReencrypt re-encrypts all stored secrets with the first master key.
type secretsReencrypt struct {
	serverFlags
	reasonFlag
	JSON bool `help:"Print the result as JSON."`
}

// Help is the text below the summary of secrets reencrypt --help.
func (*secretsReencrypt) Help() string {
	return "To replace the master key, restart every process three times: first with master_key old,new, " +
		"then with new,old, and then run this command until 0 rows are left. Last, restart with the new " +
		"key alone. Needs the admin key of the settings. The server keeps working meanwhile, and the " +
		"command can be run again at any time."
}

// Run requests step after step and prints the totals. It fails if rows could not be decrypted.
func (cmd *secretsReencrypt) Run(c *session) error {
	if err := c.connect(); err != nil {
		return err
	}
	var sum, step client.Reencryption
	progress := c.NewProgress("rows", 0)
	err := error(nil)
	for more := true; more && err == nil; more = step.Next != "" {
		in := client.ReencryptRequest{From: step.Next, Change: client.Change{Reason: cmd.Reason}}
		step = client.Reencryption{}
		_, err = c.call(post("/v1/secret/reencrypt", in), &step)
		if err == nil {
			sum.KeyID, sum.Left = step.KeyID, step.Left
			sum.Done, sum.Failed = sum.Done+step.Done, sum.Failed+step.Failed
			progress.Set(sum.Done, sum.Done+sum.Left)
		}
	}
	progress.End(err != nil)
	if err != nil {
		return err
	}
	if cmd.JSON {
		if err := c.PrintValue(struct {
			client.Reencryption
			Next *string `json:"next,omitempty"` // hides Next: the report is complete
		}{Reencryption: sum}); err != nil {
			return err
		}
	} else {
		c.printf("%d rows re-encrypted with master key %s, %d left\n", sum.Done, sum.KeyID, sum.Left)
	}
	if sum.Failed > 0 {
		return fmt.Errorf("%d rows could not be decrypted; add the older master keys to master_key and "+
			"see the server's log", sum.Failed)
	}
	return nil
}

// AuditCommand has the commands for the audit log.
type AuditCommand struct {
	List   auditList   `cmd:"" help:"List changes in the project and who made them, newest first."`
	Verify auditVerify `cmd:"" help:"Verify the hash chain of the audit log of all projects; exit with 1 if it is broken."`
}

// auditList lists entries of the audit log.
type auditList struct{ listFlags }

// Help is the text below the summary of audit list --help.
func (*auditList) Help() string {
	return "Needs a key with the scope admin. --json prints complete entries, with their hashes."
}

// Run prints the entries.
func (cmd *auditList) Run(c *session) error {
	none, header := "no changes in the project",
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

// side shortens one side of a change.
func side(text json.RawMessage) string {
	if len(text) == 0 || string(text) == "null" {
		return "–"
	}
	return console.Short(string(text), console.Widest)
}

// auditVerify verifies the chain through the running server, which has the key of the chain.
type auditVerify struct {
	serverFlags
	Expect string `in:"expect" placeholder:"SEQ:HASH" help:"Head of the chain from an earlier run or a log. The chain must contain it."`
	JSON   bool   `help:"Print the result as JSON."`
}

// Help is the text below the summary of audit verify --help.
func (*auditVerify) Help() string {
	return "Needs the admin key of the settings. Finds entries that were changed, removed, moved or " +
		"inserted. If the last entries and the head in SQL were removed together, only --expect " +
		"finds that. So store the printed head outside the database. " +
		"The exit code is 1 if the chain is broken."
}

// Run requests step after step. The exit code is 1 if the chain is broken.
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
			Next *string `json:"next,omitempty"` // hides Next: the report is complete
		}{AuditCheck: report}); err != nil {
			return err
		}
	} else {
		showAuditCheck(c, &report)
	}
	if !report.Sound {
		return console.ErrPrinted
	}
	return nil
}

// showAuditCheck prints the result of a check.
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
	c.printf("%s\nhead: %s\n", c.Paint("the chain is intact", console.Green), r.Head)
}
