package sign

// A SignerKind is what decides where the secrets of a signer may be used: its name and the use of its
// secrets. Two signers of the same kind use a secret in the same way.
type Kind struct {
	Name string
	// Use is one of Uses; empty: the signer has no secret.
	Use string
}

// KindOf returns the kind of a signer: a name or a JSON object with its options, as ParseSigner returns it;
// empty means the default one. Anything else is an error.
func KindOf(signer string) (Kind, error) {
	switch signer {
	case "":
		return Kind{Standard, UseHMAC}, nil
	case Standard, HMACBody, Timestamped:
		return Kind{signer, UseHMAC}, nil
	case StandardAsymmetric:
		return Kind{signer, UseEd25519}, nil
	case Basic:
		return Kind{signer, UseBasic}, nil
	case Bearer:
		return Kind{signer, UseText}, nil
	case None:
		return Kind{Name: signer}, nil
	}
	s, err := readSigner(signer)
	if err != nil {
		return Kind{}, err
	}
	return Kind{s.name, s.use()}, nil
}

// UseOf returns the use of a signer's secrets, as KindOf does.
func UseOf(signer string) (use string, err error) {
	k, err := KindOf(signer)
	return k.Use, err
}

// SendsSecret says whether the signer sends its secret itself, so that the receiver has it then.
func (k Kind) SendsSecret() bool { return k.Name == Basic || k.Name == Bearer }

// IsBound says whether the signer's secrets are for the hosts that they were given for: it sends its secret,
// or has a private key.
func (k Kind) IsBound() bool { return k.SendsSecret() || IsPrivate(k.Use) }

// IsPrivate says whether secrets of a use are private keys: one signs for every receiver alike, and none of
// them has it.
func IsPrivate(use string) bool { return use == UseRSA || use == UseEd25519 }
