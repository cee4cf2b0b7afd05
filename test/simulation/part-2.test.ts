import { simulationPart } from './part.ts';

simulationPart(2);
