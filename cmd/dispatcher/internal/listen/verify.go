package listen

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
)

// verifier reads the signer and the secrets into r, and returns what is wrong with them. Its texts contain no
// secret.
func (cmd *Command) verifier(c *console.Console, r *receiver) (wrong []string) {
	signer, use, problem := readSigner(c, cmp.Or(cmd.Signer, sign.Standard))
	if problem != "" {
		return []string{"--signer " + problem}
	}
	r.signer = signer
	switch {
	case use == "" && len(cmd.Secret) > 0:
		return []string{"--secret: the signer none does not sign; use --signer with another signer"}
	case use != "" && cmd.Signer != "" && len(cmd.Secret) == 0:
		return []string{"--signer needs --secret: " + secretForm(use)}
	}
	for i, given := range cmd.Secret {
		number := fmt.Sprintf("--secret %d: ", i+1)
		content, err := c.ReadSecret("secret", given)
		if err != nil {
			wrong = append(wrong, strings.Replace(err.Error(), "--secret: ", number, 1))
			continue
		}
		written := []string{content}
		if use == sign.UseHMAC || use == sign.UseEd25519 { // these contain no commas
			written = strings.Split(content, ",")
		}
		for _, w := range written {
			key, err := sign.ParseVerifierFor(use, strings.TrimSpace(w))
			if err != nil {
				wrong = append(wrong, fmt.Sprintf("%s%s; write %s", number, err, secretForm(use)))
				continue
			}
			r.secrets = append(r.secrets, sign.Secret{Key: key})
		}
	}
	return wrong
}

// readSigner parses a signer's name or object. use is the kind of its secret.
func readSigner(c *console.Console, given string) (signer, use, problem string) {
	content, err := c.ReadText("signer", given)
	if err != nil {
		return "", "", strings.TrimPrefix(err.Error(), "--signer: ")
	}
	content = strings.TrimSpace(content)
	raw := []byte(content)
	if !strings.HasPrefix(content, "{") {
		raw = strconv.AppendQuote(nil, content)
	}
	signer, wrong := sign.Parse(raw)
	if len(wrong) > 0 {
		return "", "", strings.TrimSpace(wrong[0].Field + " " + wrong[0].Message)
	}
	use, err = sign.UseOf(signer)
	if err != nil {
		return "", "", err.Error()
	}
	return signer, use, ""
}

// secretForm describes the form of a secret.
func secretForm(use string) string {
	switch use {
	case sign.UseHMAC:
		return "whsec_ and base64"
	case sign.UseEd25519:
		return "the public key, whpk_ and base64"
	case sign.UseRSA:
		return "PEM of the public key or a certificate: @FILE"
	case sign.UseBasic:
		return "user:password"
	}
	return "the key or token"
}

// verification describes how signatures are verified.
func (r *receiver) verification() string {
	switch {
	case r.signer == sign.None:
		return "requests are not signed, so nothing is verified"
	case len(r.secrets) == 0:
		return "signatures are not verified; to verify them, use --secret (\"dispatcher endpoint secret\" " +
			"prints the secret of an endpoint, \"dispatcher lane secret\" that of a URL)"
	case len(r.secrets) == 1:
		return "every request must be signed by " + r.signer
	}
	return fmt.Sprintf("every request must be signed by %s with one of %d secrets", r.signer, len(r.secrets))
}

// signatureCheck is the result of a signature check.
type signatureCheck struct {
	text   string
	colour console.Colour
	// bad requests get a 401, whatever --respond says.
	bad bool
}

// checkSignature checks a request with each secret. readErr is the error of reading its body.
func (r *receiver) checkSignature(req *http.Request, body []byte, readErr error) signatureCheck {
	switch {
	case readErr != nil:
		return signatureCheck{"read the body: " + readErr.Error(), console.Red, true}
	case len(r.secrets) == 0:
		return signatureCheck{"signature not verified", console.Faint, false}
	}
	var by []string
	var first error
	for i := range r.secrets {
		err := sign.Verify(r.signer, r.secrets[i:i+1], req.Header, req.URL, body, 0)
		if err == nil {
			by = append(by, strconv.Itoa(i+1))
		} else if first == nil {
			first = err
		}
	}
	if len(by) == 0 {
		text := "signature wrong: " + first.Error() + hint(req.Header, r.signer, first)
		return signatureCheck{text, console.Red, true}
	}
	ok := "signature ok"
	// During a rotation, this shows whether the old secret is still in use.
	if len(r.secrets) > 1 {
		ok += ", by secret " + strings.Join(by, " and ") + " of " + strconv.Itoa(len(r.secrets))
	}
	return signatureCheck{ok, console.Green, false}
}

// hint names the signer that a request seems to use, if it has no signature of the expected one. The two
// signers of Standard Webhooks share their headers.
func hint(h http.Header, signer string, err error) string {
	shared := signer == sign.Standard || signer == sign.StandardAsymmetric
	if !errors.Is(err, sign.ErrHeaders) && (!shared || !errors.Is(err, sign.ErrSignature)) {
		return ""
	}
	standard, authorization := h.Get("Webhook-Signature"), h.Get("Authorization")
	for _, look := range []struct {
		name string
		seen bool
	}{
		{sign.Standard, strings.Contains(standard, "v1,")},
		{sign.StandardAsymmetric, strings.Contains(standard, "v1a,")},
		{sign.WeChatV3, h.Get("Wechatpay-Signature") != ""},
		{sign.Basic, strings.HasPrefix(authorization, "Basic ")},
		{sign.Bearer, strings.HasPrefix(authorization, "Bearer ")},
	} {
		if look.seen {
			if look.name == signer {
				return ""
			}
			return "; it looks signed by " + look.name
		}
	}
	return ""
}

// Help is the text below the summary of listen --help.
func (*Command) Help() string {
	var b strings.Builder
	b.WriteString("A request with a wrong signature gets a 401, whatever --respond says.\n\n" +
		"Signers, and the form of --secret:\n\n")
	for _, s := range sign.Infos() {
		if s.Use == "" {
			continue
		}
		form := secretForm(s.Use)
		if s.Name == sign.SortedKV {
			form += "; for rsa2 as the next one"
		}
		fmt.Fprintf(&b, "  %-16s  %s\n", s.Name, form)
	}
	b.WriteString("\nA signer with options is an object: --signer '{\"type\": \"hmac-sha256-body\", " +
		"\"header\": \"X-Hub-Signature-256\"}'. \"dispatcher signer list\" explains them.")
	return b.String()
}
